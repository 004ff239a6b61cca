"""How long spot instances stay available and how long they are gone, by zone, from recorded availability or lifetimes."""
