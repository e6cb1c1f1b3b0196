"""Recipes, a module for each family: what `tower_anchors.recipe` says of them."""
