"""Reports as tables, pictures and pages; comparisons of reports; budgets."""
