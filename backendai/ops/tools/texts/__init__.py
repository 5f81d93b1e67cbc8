"""The translatable texts of the interface, and the catalogues of their translations."""
