// type
