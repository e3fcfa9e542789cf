// Package kwokprovider tests the kwok provider against real control planes: real Nodes, real Pods, a real apiserver that
// goes away. The provider runs in the test's process, over loopback, so that its store and its backend can be looked at.
package kwokprovider
