"""The file formats that hold rows. Every reader works in bounded memory."""
