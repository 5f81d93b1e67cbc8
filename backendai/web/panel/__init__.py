"""The administration panel: lists, forms and questions, all built alike."""
