"""What training costs, worked out: time and memory on machines that are not here."""
