// name
