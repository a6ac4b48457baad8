"""What a run is judged by, and the page that shows it."""
