// Command goproxy is Go's standard reverse proxy, as a reference for podgate's metadata proxy: the library that
// metadata-proxy v0.1.12 was made of, without its filter and its log.
package main

import (
	"flag"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8082", "address to listen on")
	upstream := flag.String("upstream", "http://127.0.0.1:8080", "where requests go")
	flag.Parse()
	target, err := url.Parse(*upstream)
	if err != nil {
		log.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{
		// The default keeps 2 connections to one host: with more clients each answer would cost a handshake.
		MaxIdleConnsPerHost: 256,
		DisableCompression:  true,
	}
	log.Fatal(http.ListenAndServe(*listen, proxy))
}
