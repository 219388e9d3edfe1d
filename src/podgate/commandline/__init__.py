"""What a command line says and is told: options, old flags, help, and the rows of check and doctor. Pure."""
