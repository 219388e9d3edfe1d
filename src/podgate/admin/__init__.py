"""What an administrator does to a whole cluster: add-ons, a look at everything, and moving old labels."""
