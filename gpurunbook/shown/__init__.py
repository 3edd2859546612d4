"""What a cell, a page and a terminal are shown: escaped, small, and without secrets."""
