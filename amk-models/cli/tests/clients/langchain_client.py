"""Asks a server as programs with LangChain do: langchain_client.py URL MODEL"""

import sys
from typing import Annotated

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

model = ChatOpenAI(base_url=sys.argv[1], model=sys.argv[2], api_key="none", max_retries=0, temperature=0, max_tokens=600)
Digit = Annotated[int, Field(ge=0, le=9)]
messages = [SystemMessage("Be brief."), HumanMessage("Name a colour.")]


@tool
def add(a: Digit, b: Digit) -> int:
    """Adds two numbers."""
    return a + b


class Colour(BaseModel):
    """A colour."""

    name: str = Field(max_length=12)


answer = model.bind(max_tokens=8).invoke(messages)
assert answer.content and answer.usage_metadata["output_tokens"] <= 8, answer
assert "".join(chunk.content for chunk in model.bind(max_tokens=8).stream(messages)) == answer.content
called = model.bind_tools([add], tool_choice="any", parallel_tool_calls=False).invoke("Add 2 and 3.")
assert called.tool_calls[0]["name"] == "add" and set(called.tool_calls[0]["args"]) == {"a", "b"}, called
for method in ["json_schema", "function_calling"]:
    colour = model.with_structured_output(Colour, method=method).invoke(messages)
    assert isinstance(colour, Colour), colour
print("ok")
