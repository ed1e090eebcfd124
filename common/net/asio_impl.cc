#include "common/net/asio.h"
// The configuration above comes first: a blank line and this comment keep the formatter from sorting across.

#include <boost/asio/impl/src.hpp>
