"""The two parts that come along, and what every part is made of."""
