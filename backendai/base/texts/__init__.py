"""Messages of the other rooms in the language of the page or of the answer."""
