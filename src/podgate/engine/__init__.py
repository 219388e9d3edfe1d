"""The crank that turns inputs into programmed targets. It knows no technology and no feature."""
