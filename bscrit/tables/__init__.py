"""Any table -> crossings: bytes -> formats -> sheet -> columns -> rows or curves -> crossings."""
