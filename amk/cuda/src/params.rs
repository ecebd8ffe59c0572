//! Launch parameters as the driver takes them.

use super::image::Record;
pub(super) use super::image::abi::Params;
use cudarc::driver::DeviceRepr;

// SAFETY: plain data whose layout is the device's: both come from `image::abi`, 8-byte fields
// first.
unsafe impl DeviceRepr for Params {}
// SAFETY: plain data, 16 words.
unsafe impl DeviceRepr for Record {}
