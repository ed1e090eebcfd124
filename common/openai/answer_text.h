// The generated text inside an answer: of one chunk of a stream, or of a whole answer. What continues the
// prompt when the client sends it back with the next turn.
#pragma once

#include <string>

namespace kvring::openai {

/// Appends the text of choice 0 of `json` to `out`: choices[].delta.content, .message.content or .text.
/// False: the answer holds more than text (tool calls), or is no answer; `out` may have grown. `json` may be
/// reallocated for padding, never changed.
bool AppendAnswerText(std::string& json, std::string& out);

}  // namespace kvring::openai
