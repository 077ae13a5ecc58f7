"""Any table -> crossings: bytes -> dialect -> sheet -> columns -> rows or curves -> crossings."""
