"""An HTTP server in the form of OpenAI's interface; needs the extra `serve`."""
