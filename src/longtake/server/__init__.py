"""Sessions behind one door: frames and questions come over HTTP and WebSocket, poses, depth and answers go back."""
