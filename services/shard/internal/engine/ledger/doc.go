// Package ledger remembers between plans what one plan cannot know.
//
//   - Parking: gangs that no domain can satisfy, and when they may probe again (ENG-18).
//   - Sharing: the sharing level of each cluster, by whether its scheduler places Pods on shared capacity (ENG-11.10 to 11.15),
//     and the headroom of rows whose Pods stay unplaced (ENG-11.16, 11.17).
//   - Join: drains and failures of machines whose nodes never joined (ENG-17.4, 17.6).
//
// The core owns one of each. It passes them every Result and copies their answers into demand before the next plan. A ledger
// reads no clock, decides no action, and can be saved and restored (Entries, Restore).
package ledger
