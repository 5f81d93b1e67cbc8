"""The texts of the interface: which there are, and the catalogues of their translations."""
