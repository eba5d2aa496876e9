"""What `import longtake` offers: the words people write become the settings of the rooms below."""
