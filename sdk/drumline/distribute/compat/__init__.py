"""Strategies of older TensorFlow versions."""
