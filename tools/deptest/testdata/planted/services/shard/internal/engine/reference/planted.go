package reference
