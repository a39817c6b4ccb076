"""What loaderx and loaderx 0.7.3 write, the other must read, extend, thin out and compact."""
