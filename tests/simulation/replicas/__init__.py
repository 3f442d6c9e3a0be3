"""Several coordinators on one store, by chance: who is asked, who dies, and what is heard."""
