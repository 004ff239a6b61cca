"""Captured programs in files, and the texts that programs are captured from."""

from .read_capture import is_capture as is_capture, read_capture as read_capture
from .write_capture import write_capture as write_capture
