"""I/O in: each source gives the newest value of one field of the inputs. They know no features and no targets."""
