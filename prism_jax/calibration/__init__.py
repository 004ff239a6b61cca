"""What measured steps say about the cost model: corrections per device and software, and how sure they are."""
