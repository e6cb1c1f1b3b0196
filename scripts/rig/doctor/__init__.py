"""What is wrong with this box for serving, said with a reason and a next step."""
