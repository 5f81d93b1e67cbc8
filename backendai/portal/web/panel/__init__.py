"""The administration panel: lists, forms and confirmations, built on the same base classes."""
