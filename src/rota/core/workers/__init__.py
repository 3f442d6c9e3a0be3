"""Workers: registration, health, quality, and the choice between them."""
