"""What the kubelet was doing: relists and their events, sync passes, and the runs of calls that make up the rest."""
