"""From source to Task and Candidate. Frontends know nothing of gates."""
