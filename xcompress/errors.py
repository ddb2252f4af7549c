"""The errors users see: one line each, with an exit code."""


class XCompressError(Exception):
    """Something went wrong that the user can read in one line: what, where, and what to do."""

    exit_code = 1


class InputError(XCompressError):
    """Bad input: a recipe, reference, file or folder that cannot be used as it is."""

    exit_code = 2


class GateError(XCompressError):
    """A result was refused because measured quality fell below its bound."""

    exit_code = 3
