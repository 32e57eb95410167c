"""Import models of other toolkits, export to other engines."""
