"""Any table or log -> crossings: bytes -> formats -> sheet -> columns -> rows or curves -> crossings."""
