// Internal to the shells: the one way to include Boost.Asio, so that every file sees the same configuration
// and its code is compiled once (asio_impl.cc). Never included by a header that other rooms include.
#pragma once

#define BOOST_ASIO_SEPARATE_COMPILATION 1
#define BOOST_ASIO_NO_DEPRECATED 1
#define BOOST_ASIO_DISABLE_HANDLER_TYPE_REQUIREMENTS 1
// An io_context here has one thread, and posting from others goes through its mutex: fences around handlers
// add nothing, and the thread sanitizer does not understand them.
#define BOOST_ASIO_DISABLE_FENCED_BLOCK 1

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

namespace kvring::net {
namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;
}  // namespace kvring::net
