"""The fit of kernel times on measured operators, and its errors on what the fit did not see."""
