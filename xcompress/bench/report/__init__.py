"""A bench as tables, pictures and pages."""
