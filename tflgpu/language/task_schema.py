"""Schema of what .task files say of their language model: MediaPipe's ``llm_params.proto``.

No package ships its classes alone, so protobuf makes them of this description.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.text_format import Parse

_SCHEMA = """
name: "llm_params.proto" package: "odml.infra.proto" syntax: "proto3"
message_type {
  name: "PromptTemplate"
  field { name: "session_prefix" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "prompt_prefix" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "prompt_suffix" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL }
}
message_type {
  name: "LlmParameters"
  oneof_decl { name: "start_token_union" }
  field { name: "transformer_parameters" number: 1 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "vocab_size" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "start_token_id" number: 4 type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "start_token" number: 6 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "stop_tokens" number: 5 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "input_output_normalizations" number: 7 type: TYPE_INT32 label: LABEL_REPEATED }
  field {
    name: "prompt_template" number: 8 type: TYPE_MESSAGE label: LABEL_OPTIONAL
    type_name: ".odml.infra.proto.PromptTemplate"
  }
  field { name: "num_draft_tokens" number: 9 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "submodel_transformer_parameters" number: 16 type: TYPE_BYTES label: LABEL_OPTIONAL }
}
"""


@cache
def llm_parameters() -> Any:
    """Return the class of the message LlmParameters."""
    pool = DescriptorPool()
    pool.Add(Parse(_SCHEMA, FileDescriptorProto()))
    return GetMessageClass(pool.FindMessageTypeByName("odml.infra.proto.LlmParameters"))
