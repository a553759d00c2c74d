"""An answer of the code domain goes in, a whole Python source comes out."""

from spectiny.document import Document


def source(document: Document, response: str) -> str:
    """Return the response as a module of its own; where the prompt is the first line of it, put that in front."""
    if document.prompt.startswith(("def ", "class ")):
        return f"{document.prompt}\n{response}\n"
    return f"{response}\n"
