"""What users copy: a dispatcher of their own, and a broker that tells of its topics."""
