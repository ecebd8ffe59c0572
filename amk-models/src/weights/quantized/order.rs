//! The order of columns in which the groups of a matrix are one after the other.

use std::sync::Arc;

use super::super::{FormatError, StoredTensor};
use super::parts::{Type, expect, refusal};

/// Reads a list of each column's group (`g_idx`). `None` if columns are already in order.
///
/// # Errors
/// If the list is not int32, does not have an entry for each column, or names groups that do not
/// exist or do not have the required number of columns.
pub(super) fn read(tensor: &StoredTensor, columns: usize, group: usize) -> Result<Option<Arc<[u32]>>, FormatError> {
    expect(tensor, Type::I32, &[columns])?;
    let bytes = tensor.rows.place().bytes();
    let groups: Vec<i32> = bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect();
    // Written by compressed-tensors for groups of consecutive columns.
    let unset = groups.iter().all(|&group| group == -1);
    let count = columns.div_ceil(group);
    let in_order = |(column, &found): (usize, &i32)| usize::try_from(found) == Ok(column / group);
    if unset || groups.iter().enumerate().all(in_order) {
        return Ok(None);
    }
    if let Some((column, found)) =
        groups.iter().enumerate().find(|(_, found)| !(0..count as i64).contains(&i64::from(**found)))
    {
        return Err(refusal(tensor, format!("column {column} is in group {found} of {count}")));
    }
    let mut order: Vec<u32> = (0..columns as u32).collect();
    order.sort_by_key(|&column| groups[column as usize]);
    let belongs = |(place, &column): (usize, &u32)| groups[column as usize] as usize == place / group;
    if let Some(place) = order.iter().enumerate().position(|place| !belongs(place)) {
        let group_of = groups[order[place] as usize];
        let reason = format!("group {group_of} or the one before it does not have {group} columns");
        return Err(refusal(tensor, reason));
    }
    Ok(Some(order.into()))
}
