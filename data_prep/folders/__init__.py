"""What all prepared folders share: staging, formats, checks."""
