// clang-format off: the configuration must come first.
#include "common/net/asio.h"
#include <boost/asio/impl/src.hpp>
// clang-format on
